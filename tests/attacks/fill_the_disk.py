# a disk that is full when the next checkpoint is written, or an input that is changed
# ends: ok
import mmap, tempfile
refused(tempfile.TemporaryFile, tempfile.mkdtemp, lambda: os.write(0, b"x" * 10**6), lambda: os.ftruncate(0, 2**40),
        lambda: os.posix_fallocate(0, 0, 2**40), lambda: mmap.mmap(0, 0), lambda: os.write(0, b"1"),
        lambda: os.ftruncate(0, 1), lambda: os.fchmod(0, 0o700))
