# Completion of sandboxctl for bash: sandboxctl itself says what may come next.
_sandboxctl() {
	local word=${COMP_WORDS[COMP_CWORD]} candidate
	# What was typed with a quote or a backslash is asked for without.
	local -a words=()
	for candidate in "${COMP_WORDS[@]:1:COMP_CWORD}"; do
		candidate=${candidate#[\'\"]}
		words+=("${candidate//\\/}")
	done
	COMPREPLY=()
	while IFS= read -r candidate; do
		if [ "$candidate" = :files ]; then
			compopt -o filenames 2>/dev/null
			mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$word")
		else
			COMPREPLY+=("$(printf %q "$candidate")")
		fi
	done < <(sandboxctl __complete "${words[@]}" 2>/dev/null)
}
complete -F _sandboxctl sandboxctl
