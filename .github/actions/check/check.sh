#!/usr/bin/env bash
# The action's step: asks `vramscope check`, puts the answer into the job summary and, with a token, into one comment on the pull request.
# Exits as `vramscope check` did. FILE, BASELINE, TOLERANCE, LIMITS, GH_TOKEN and PULL_REQUEST are the action's inputs.
set -uo pipefail

words=(check --format md)
[ -z "${BASELINE:-}" ] || words+=("--baseline=$BASELINE" "--tolerance=${TOLERANCE:-1%+16MiB}")
while IFS= read -r word; do
  # A workflow that was written on Windows may have its line ends.
  word=${word%$'\r'}
  [ -z "$word" ] || words+=("$word")
done <<<"${LIMITS:-}"
# A file's name is never an option.
words+=(-- "$FILE")

report=$(mktemp "${RUNNER_TEMP:-/tmp}/vramscope-XXXXXX.md")
errors=$(mktemp "${RUNNER_TEMP:-/tmp}/vramscope-XXXXXX.txt")
code=0
vramscope "${words[@]}" >"$report" 2>"$errors" || code=$?
cat "$errors" >&2
if [ ! -s "$report" ]; then
  # A file that cannot be opened, or an option that is none: the sentence is the answer. As code, so that no name in it is markup.
  { echo '**vramscope: no answer**'; echo; sed 's/^/    /' "$errors"; } >"$report"
fi
cat "$report"
cat "$report" >>"${GITHUB_STEP_SUMMARY:-/dev/null}"
{
  [ "$code" = 0 ] && echo passed=true || echo passed=false
  echo "report=$report"
} >>"${GITHUB_OUTPUT:-/dev/null}"

# One comment, written anew at each run. A pull request from a fork has a token that may not comment: that fails no job.
comment() {
  local mark='<!-- vramscope check -->' id
  { echo "$mark"; cat "$report"; } >"$report.comment"
  id=$(gh api --paginate "repos/$GITHUB_REPOSITORY/issues/$PULL_REQUEST/comments" \
    --jq ".[] | select(.body | startswith(\"$mark\")) | .id") || return 1
  id=${id%%$'\n'*}
  if [ -n "$id" ]; then
    gh api --silent --method PATCH "repos/$GITHUB_REPOSITORY/issues/comments/$id" --field "body=@$report.comment"
  else
    gh api --silent --method POST "repos/$GITHUB_REPOSITORY/issues/$PULL_REQUEST/comments" --field "body=@$report.comment"
  fi
}
if [ -n "${GH_TOKEN:-}" ] && [ -n "${PULL_REQUEST:-}" ]; then
  comment || echo "::warning::vramscope: the comment could not be written; the job summary has the answer"
fi
exit "$code"
