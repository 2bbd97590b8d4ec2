"""Implementation of rollout.py's engines: prefix.py for TorchEngine, vllm.py for VLLMEngine.

model.py has what both need of the trained model. rounding.py rounds its weights to bfloat16, in the trainer too.
"""
