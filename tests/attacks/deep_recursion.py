# a stack overflow
# ends: crashed error timeout
sys.setrecursionlimit(10**9)
class A:
    def __repr__(self): return repr(self) + repr(self)
repr(A())
