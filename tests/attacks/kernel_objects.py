# shared memory, queues and semaphores that stay after their process
# ends: ok
from multiprocessing import shared_memory
import multiprocessing
refused(lambda: libc.shmget(1, 4096, 0o1600), lambda: libc.msgget(1, 0o1600), lambda: libc.semget(1, 1, 0o1600),
        lambda: libc.mq_open(b"/" + mark.encode(), 0o102, 0o600, None), lambda: os.memfd_create("x"),
        lambda: shared_memory.SharedMemory(mark, True, 4096), multiprocessing.Lock)
