# its violent end, which says nothing but that
# ends: crashed
os.kill(os.getpid(), signal.SIGKILL)
