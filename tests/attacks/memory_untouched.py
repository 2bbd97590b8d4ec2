# address space without end
# ends: error
import mmap
hold = [mmap.mmap(-1, 2**30) for _ in range(10**6)]
