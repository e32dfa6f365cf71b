"""Run the tests of this project with nothing but the standard library.

    python3 runtests.py                     every file tests/test_*.py
    python3 runtests.py tests/test_x.py     some of them

A test is a function `test_*`, or a method `test_*` of a class `Test*`. One line is printed for
each (`PASSED tests/test_x.py::test_y`), after the tracebacks of those that failed. The exit status
is 1 when a test failed and 2 when there were none.
"""

import importlib.util
import sys
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parent


def load(path):
    name = "tests_" + path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def collect(module):
    for name, thing in vars(module).items():
        if name.startswith("test_") and callable(thing):
            yield name, thing
        elif name.startswith("Test") and isinstance(thing, type):
            for method in dir(thing):
                if method.startswith("test_"):
                    yield f"{name}::{method}", getattr(thing(), method)


def run_file(path, lines):
    shown = path.relative_to(ROOT).as_posix()
    try:
        tests = list(collect(load(path)))
    except Exception:
        print(f"______ {shown} cannot be imported ______")
        traceback.print_exc(file=sys.stdout)
        lines.append(f"ERROR {shown}")
        return
    for name, test in tests:
        try:
            test()
        except Exception as error:
            print(f"______ {shown}::{name} ______")
            traceback.print_exc(file=sys.stdout)
            reason = (str(error).splitlines() or [""])[0]
            lines.append(f"FAILED {shown}::{name} - {type(error).__name__}: {reason}")
        else:
            lines.append(f"PASSED {shown}::{name}")


def main(arguments):
    sys.path.insert(0, str(ROOT))
    sys.dont_write_bytecode = True
    chosen = [Path(a).resolve() for a in arguments] or sorted((ROOT / "tests").glob("test_*.py"))
    lines = []
    for path in chosen:
        run_file(path, lines)
    print("====== summary ======")
    print("\n".join(lines))
    passed = sum(line.startswith("PASSED") for line in lines)
    print(f"====== {passed} passed, {len(lines) - passed} failed ======")
    return 2 if not lines else int(passed < len(lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
