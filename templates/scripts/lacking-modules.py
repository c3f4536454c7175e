# Prints which of the modules in the arguments this Python lacks, without loading them.
import importlib.util, sys
for name in sys.argv[1:]:
    if importlib.util.find_spec(name) is None:
        print("lacks", name)
