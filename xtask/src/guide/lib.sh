# What the situations of the guide's tasks may use, besides plant_live/lib.sh.

skip() { printf '%s\n' "$*" >&2; exit 77; }

# python_with MODULE...: sets PYTHON to one that has them, from PyPI if need be; what was fetched is kept.
python_with() {
    local venv=$KEPT/venv all
    all=$(IFS=,; echo "$*")
    if "$PY" -c "import $all" 2>/dev/null; then
        say PYTHON "$PY"
        return
    fi
    say PYTHON "$venv/bin/python"
    "$PYTHON" -c "import $all" 2>/dev/null && return
    mkdir -p "$KEPT"
    { "$PY" -m venv "$venv" && "$PYTHON" -m pip -q install "$@"; } >&2 ||
        skip "python3 has no $all, and they could not be installed from PyPI"
}

# behind PID...: ends them when the task ends.
behind() { undo "kill $* 2>/dev/null || :"; }
