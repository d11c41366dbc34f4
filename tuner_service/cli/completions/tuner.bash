# Completions of tuner for bash: what may come next is asked of the command itself.
_tuner_complete() {
    local program=$1 current=${COMP_WORDS[COMP_CWORD]} word= kind= value found breaks prefix
    [[ $program == '~/'* ]] && program=$HOME/${program#'~/'}
    COMPREPLY=()
    while IFS=$'\t' read -r value found; do
        case $value in
            :word) word=$found ;;
            :*) kind=$value ;;
            *) COMPREPLY+=("$value") ;;
        esac
    done < <(printf '%s' "${COMP_LINE:0:COMP_POINT}" | command "$program" completion bash --words 2>/dev/null)
    # What stands before the last of these signs is a word of its own to bash, and stays; an @ belongs to what follows.
    breaks=${COMP_WORDBREAKS//@/}
    prefix=${word%"${word##*["$breaks"]}"}
    [[ $COMP_WORDBREAKS == *@* && ${word#"$prefix"} == ?*@* ]] && prefix=${word%@*}
    COMPREPLY=("${COMPREPLY[@]#"$prefix"}")
    if [[ $kind == :files || $kind == :folders ]]; then
        compopt -o filenames
        [[ $current == [=:@] ]] && current=
        while IFS= read -r value; do
            COMPREPLY+=("$value")
        done < <(if [[ $kind == :files ]]; then compgen -f -- "$current"; else compgen -d -- "$current"; fi)
    elif [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *[=/] ]]; then
        compopt -o nospace
    fi
}
complete -F _tuner_complete tuner
