"""How rollout.py's engines are made to work.

protocol.py        what an engine is and what it returns: Group, Order, Engine, EngineError
sampling.py        the arguments of `generate`: defaults from the model, what is refused, a seed per prompt
prefix.py          attention of N rows to the one copy of their prompt
decoders.py        two ways to decode (one shared prompt, or N copies), and the check that chooses between them
memory.py          the memory that a row takes
weights.py         the trainer's weights, whole, one tensor at a time
vllm.py            VLLMEngine: vLLM in the trainer's process
vllm_requests.py   vLLM's step loop: orders go in, groups come out
"""
