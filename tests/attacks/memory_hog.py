# memory taken until the kernel kills the trainer
# ends: error timeout
hold = []
while True:
    hold.append(bytearray(2**24))
