"""How rollout.py's engines are made to work.

protocol.py        what an engine is, takes and returns: Engine, Order, Group, EngineError, the trainer's weights
prefix.py          attention of N rows to the one copy of their prompt
decoders.py        two ways to decode (one shared prompt, or N copies), the check that chooses, the memory of a row
vllm.py            VLLMEngine: vLLM in the trainer's process
vllm_requests.py   vLLM's step loop: orders go in, groups come out
"""
