# a process that stops itself and waits forever
# ends: timeout
os.kill(os.getpid(), signal.SIGSTOP)
