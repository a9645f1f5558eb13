"""What shells run to complete `puna`: they ask the hidden command `puna __complete WORDS...`."""

from __future__ import annotations

# Words are those that blanks separate: bash's own have a colon as a word, and replaces only what follows it.
_BASH = """\
_puna() {
    local line="${COMP_LINE:0:$COMP_POINT}" words word found
    read -ra words <<< "$line"
    [[ $line == *[[:blank:]] ]] && words+=("")
    word="${words[${#words[@]}-1]}"
    mapfile -t found < <(puna __complete "${words[@]:1}" 2>/dev/null)
    [[ $word == *:* && $COMP_WORDBREAKS == *:* ]] && found=("${found[@]#"${word%"${word##*:}"}"}")
    COMPREPLY=("${found[@]}")
}
complete -o bashdefault -o default -F _puna puna
"""

_ZSH = """\
#compdef puna
_puna() {
    local -a found
    found=("${(@f)$(puna __complete "${(@)words[2,$CURRENT]}" 2>/dev/null)}")
    if [[ -n $found[1] ]]; then compadd -Q -- $found; else _files; fi
}
compdef _puna puna
"""

_FISH = """\
function __puna_complete
    set -l words (commandline -opc) (commandline -ct)
    puna __complete $words[2..] 2>/dev/null
end
complete -c puna -a '(__puna_complete)'
"""

SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
