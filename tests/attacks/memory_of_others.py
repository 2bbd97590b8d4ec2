# the expected output, another answer's source or a key found in this process
# ends: ok
import gc
frame, seen = sys._getframe(), []
while frame:
    seen += [frame.f_locals, frame.f_globals]
    frame = frame.f_back
small = [o for o in gc.get_objects() if isinstance(o, (list, dict, tuple)) and len(o) < 30]
text = repr(seen) + "".join(map(repr, small))
if "-".join(["the", "expected", "output", "73914"]) in text:
    print("reached")
needle = "".join(["int(inp", "ut()) + 1"])
if any(isinstance(o, str) and needle in o for some in gc.get_objects() if isinstance(some, (list, tuple)) for o in some):
    print("reached")
if any("SECRET" in k or "TOKEN" in k for k in os.environ) or len(os.environ) > 12:
    print("reached")
if hasattr(sys.modules["__main__"], "Keeper"):
    print("reached")
