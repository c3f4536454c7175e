# Prints the versions of Python and of PACKAGES, which stands before this text, those of them that
# a script imports, and whether it calls one of SPAWNS. Arguments: a module that must be there, and the script, or "" for none of them.
# importlib.metadata needs Python 3.8 and 30 ms; the folders beside a package give the same versions.
# No package is imported: a framework takes seconds.
import os, sys
module, script = sys.argv[1:3]
known, seen = PACKAGES, set()
print("python %d.%d.%d" % sys.version_info[:3])
for folder in sys.path[1:]:
    try:
        entries = sorted(os.listdir(folder))
    except OSError:
        continue
    for entry in entries:
        stem, _, kind = entry.rpartition(".")
        name, _, version = stem.partition("-")
        name = name.replace("-", "_").replace(".", "_").lower()
        if kind in ("dist-info", "egg-info") and name in known and name not in seen and version:
            seen.add(name)
            print(name + " " + version.partition("-")[0])
try:
    lines = open(script, encoding="utf-8", errors="replace").readlines() if script else []
except OSError:
    lines = []
if any(word in line.partition("#")[0] for line in lines for word in SPAWNS):
    print("spawns ranks")
for line in lines:
    words = line.replace(",", " ").split()
    if words[:1] == ["from"]:
        words = words[:2]
    elif words[:1] != ["import"]:
        continue
    for word in words[1:]:
        if word.partition(".")[0] in known:
            print("uses " + word.partition(".")[0])
if module:
    import importlib.util
    if importlib.util.find_spec(module) is None:
        print("lacks " + module)
