#compdef iowhy
# zsh completion for iowhy. Candidates come from `iowhy generate complete`.
_iowhy() {
    local word about
    local -a whole open shown_whole shown_open
    while IFS=$'\t' read -r word about; do
        if [[ $word == *[=:,/] ]]; then
            open+=("$word") shown_open+=("$word${about:+  -- $about}")
        else
            whole+=("$word") shown_whole+=("$word${about:+  -- $about}")
        fi
    done < <("${words[1]}" generate complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)
    (( $#whole + $#open )) || { _files; return }
    (( $#whole )) && compadd -l -d shown_whole -a whole
    (( $#open )) && compadd -S '' -l -d shown_open -a open
    return 0
}
if [[ ${funcstack[1]} == _iowhy ]]; then
    _iowhy "$@"
else
    compdef _iowhy iowhy
fi
