"""Implementation of rollout.py's engines: prefix.py for TorchEngine, vllm.py for VLLMEngine.

model.py has what both need of the trained model, memory.py what they need of the machine. rounding.py rounds weights to
bfloat16, in the trainer too.
"""
