# Completions of tuner for fish: what may come next is asked of the command itself.
function __tuner_complete
    set -l program (commandline -opc)[1]
    string match -q '~/*' -- $program; and set program $HOME/(string sub -s 3 -- $program)
    for line in (commandline -cp | command $program completion fish --words 2>/dev/null)
        switch $line
            case ':files'
                __fish_complete_path (commandline -ct)
            case ':folders'
                __fish_complete_directories (commandline -ct) ''
            case ':*'
            case '*'
                echo $line
        end
    end
end
complete -c tuner -f -a '(__tuner_complete)'
