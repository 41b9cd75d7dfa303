# fish completion for iowhy. Candidates come from `iowhy generate complete`.
function __iowhy_complete
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    set -l found ($words[1] generate complete -- $words[2..] "$word" 2>/dev/null)
    if set -q found[1]
        printf '%s\n' $found
    else
        __fish_complete_path "$word"
    end
end
complete -c iowhy -f -a '(__iowhy_complete)'
