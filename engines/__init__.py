"""Implementation of rollout.py's engines: prefix.py for TorchEngine, vllm.py for VLLMEngine.

Both use model.py (the trained model) and memory.py (sizes in bytes). rounding.py rounds a tensor to bfloat16, in the
trainer too.
"""
