"""Implementation of rollout.py's engines: prefix.py for TorchEngine, vllm.py for VLLMEngine."""
