# processes that multiply until the machine stands still
# ends: error
refused(os.fork, os.forkpty, lambda: libc.fork(), lambda: libc.vfork())
while True:
    os.fork()
