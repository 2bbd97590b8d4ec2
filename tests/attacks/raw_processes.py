# a new process, a signal or a look into another process by a bare system call
# ends: ok, on x86_64
refused(lambda: libc.syscall(56, 17, 0, 0, 0, 0), lambda: libc.syscall(435, 0, 0),
        lambda: libc.syscall(129, os.getppid(), 9, 0), lambda: libc.syscall(424, 3, 9, 0, 0),
        lambda: libc.syscall(200, os.getppid(), 9))
refused(*(lambda p=p, n=n, a=a: libc.syscall(n, *a) for p in (os.getppid(), trainer)
          for n, a in ((101, (16, p, 0, 0)), (310, (p, 0, 0, 0, 0, 0)), (311, (p, 0, 0, 0, 0, 0)), (434, (p, 0)),
                       (438, (3, 0, 0)), (312, (p, p, 0, 0, 0)), (440, (3, 0, 0, 0, 0)))))
