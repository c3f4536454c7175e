# Prints the versions of torch and torch_npu, `-` without one. It imports neither: that takes seconds.
import importlib.util, os, sys
def version(name):
    found = importlib.util.find_spec(name)
    if found is None or not found.origin:
        return "-"
    values = {}
    with open(os.path.join(os.path.dirname(found.origin), "version.py")) as file:
        exec(file.read(), values)
    return values["__version__"]
if version("torch") == "-":
    sys.stderr.write("there is no torch for " + sys.executable)
    sys.exit(127)
print(version("torch"), version("torch_npu"))
