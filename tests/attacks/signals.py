# the keeper, the trainer, a neighbour or everyone killed
# ends: ok
import fcntl
r, w = os.pipe()
refused(*(lambda p=p, s=s: os.kill(p, s) for s in (9, 15, 0) for p in (os.getppid(), trainer, 0, -1, 1)),
        *(lambda p=p: os.kill(p, 9) for p in range(os.getpid() - 300, os.getpid() + 300) if p != os.getpid()),
        lambda: os.killpg(os.getpgid(0), 9), lambda: fcntl.fcntl(r, fcntl.F_SETOWN, os.getppid()),
        lambda: fcntl.fcntl(r, 10, 9), lambda: fcntl.ioctl(r, 0x8901, b"1234"))
