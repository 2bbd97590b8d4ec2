# threads without end
# ends: ok
threading.stack_size(32768)
try:
    for n in range(100_000):
        threading.Thread(target=time.sleep, args=(1e6,), daemon=True).start()
except (RuntimeError, MemoryError):
    pass
os.write(1, b"reached" if n > 20_000 else b"")
os._exit(0)
