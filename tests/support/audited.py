"""The command in a process that tells on it."""

# Runs the command in a Python that notes every process it starts and every heavy module it loads.
AUDITED = """
import sys
started = []
def note(event, args):
    if event in ("subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec", "os.system"):
        started.append((event, str(args)[:100]))
sys.addaudithook(note)
sys.argv = ["holdfast", *sys.argv[1:]]
from holdfast.cli import main
try:
    main()
except SystemExit as ended:
    code = ended.code
heavy = [name for name in ("pyspark", "pyarrow", "pandas", "py4j", "numpy") if name in sys.modules]
print(f"AUDIT {started} {heavy}", file=sys.stderr)
"""
