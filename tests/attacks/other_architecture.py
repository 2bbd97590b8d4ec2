# 32-bit calls, whose numbers mean something else
# ends: crashed, on x86_64
import mmap
m = mmap.mmap(-1, 4096, prot=7)
m.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
print(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))())
