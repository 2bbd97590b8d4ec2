# the same in one piece
# ends: error
x = bytearray(10**13)
