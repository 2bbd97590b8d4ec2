# descriptors that the sandbox needs, closed under it
# ends: error ok
os.closerange(0, 256)
