# a process that ignores or blocks every signal that it may
# ends: timeout
for s in set(signal.Signals) - {9, 19}:
    signal.signal(s, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
while True: pass
