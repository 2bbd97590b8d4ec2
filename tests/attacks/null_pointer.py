# a crash taken for anything but one
# ends: crashed
ctypes.string_at(0)
