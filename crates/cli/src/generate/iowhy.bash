# bash completion for iowhy. Candidates come from `iowhy generate complete`.
_iowhy() {
    local line=${COMP_LINE:0:COMP_POINT} before='' word candidate separators
    local -a words
    read -ra words <<<"$line"
    [[ $line == *[[:space:]] ]] && words+=('')
    word=${words[-1]}
    # Readline replaces only the part behind the last of its own separators.
    separators=${COMP_WORDBREAKS//[^=:,]/}
    [[ -n $separators ]] && before=${word%"${word##*["$separators"]}"}
    COMPREPLY=()
    while IFS=$'\t' read -r candidate _; do
        COMPREPLY+=("${candidate#"$before"}")
        [[ $candidate == *[=:,/] ]] && compopt -o nospace 2>/dev/null
    done < <("$1" generate complete -- "${words[@]:1}" 2>/dev/null)
}
complete -o bashdefault -o default -F _iowhy iowhy
