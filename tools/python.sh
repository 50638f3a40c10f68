#!/bin/sh
# Print the Python to build .venv with: $PYTHON if set, else the first below that is 3.11 or later with venv.
fits='import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))'

for candidate in ${PYTHON:+"$PYTHON"} python3.11 python3 python3.12 python3.13 python3.14; do
    if "$candidate" -c "$fits" >/dev/null 2>&1; then
        echo "$candidate"
        exit 0
    fi
    if [ -n "$PYTHON" ]; then break; fi # who names one wants that one
done

if [ -n "$PYTHON" ]; then
    echo "PYTHON=$PYTHON is not Python 3.11 or later with the venv module." >&2
else
    echo "Heliograph needs Python 3.11 or later with the venv module; none of these is: python3.11, python3, python3.12-14." >&2
fi
echo "Next: install it (on Debian or Ubuntu: apt install python3 python3-venv), or say where: make PYTHON=/path/to/python3.11" >&2
exit 1
