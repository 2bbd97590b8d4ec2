"""How rollout.py's engines are made to work.

prefix.py     attention of N rows to the one copy of their prompt
settle.py     what a call settles before its first token, whatever the engine
decoders.py   the two ways to decode (one shared prompt, or N copies) and the check that decides between them
memory.py     how many rows fit into memory at once
weights.py    the trainer's weights, whole and one at a time
vllm.py       a vLLM inside the trainer's process: what it is built from, what it is asked, what it must leave as it was
"""
