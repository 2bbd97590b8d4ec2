"""Implementation of rollout.py's engines: prefix.py for TorchEngine, vllm.py for VLLMEngine.

vllm_workarounds.py mends vLLM. Both engines use model.py (the trained model) and memory.py (sizes). rounding.py rounds
a tensor to bfloat16, in the trainer too.
"""
