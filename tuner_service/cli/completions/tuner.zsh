#compdef tuner
# Completions of tuner for zsh: what may come next is asked of the command itself.
_tuner() {
    local -a values shown
    local program=${(Q)words[1]} value found kind
    [[ $program == '~/'* ]] && program=$HOME/${program#'~/'}
    while IFS=$'\t' read -r value found; do
        case $value in
            :word) ;;
            :*) kind=$value ;;
            *) values+=("$value"); shown+=("$value${found:+  $found}") ;;
        esac
    done < <(printf '%s' "${(j: :)words[1,CURRENT-1]} $PREFIX" | command $program completion zsh --words 2>/dev/null)
    (( $#values )) && compadd -V tuner -l -d shown -a values
    case $kind in
        :files) _files ;;
        :folders) _files -/ ;;
    esac
}
# Read as a file of fpath it is the function itself; sourced, it has to be made known.
if [[ $funcstack[1] == _tuner ]]; then
    _tuner "$@"
else
    compdef _tuner tuner
fi
