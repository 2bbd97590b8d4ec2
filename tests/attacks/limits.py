# limits raised, or set for the keeper, or a child that no longer dies with its keeper
# ends: ok
import resource
refused(lambda: resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (0, 0)),
        lambda: os.setpriority(0, os.getppid(), 19), lambda: os.sched_setaffinity(os.getppid(), {0}),
        *(lambda n=n: libc.prctl(n, 0, 0, 0, 0) for n in (1, 4, 35, 36, 22, 0x59616D61)))
for limit in (resource.RLIMIT_FSIZE, resource.RLIMIT_AS):
    try:
        resource.setrlimit(limit, (resource.RLIM_INFINITY,) * 2)
        print("reached")
    except ValueError:
        pass
