#!/usr/bin/env bash
# Steps of the action: run, compare with the baseline, write table, picture, verdict and badge, comment, gate.
# Inputs come as INPUT_*; everything else is GitHub's environment.
set -euo pipefail

folder=$RUNNER_TEMP/iowhy/$INPUT_NAME
store=$folder/store
result=$folder/check.json
comment=$folder/comment.md
badge=$folder/badge.json
mark="<!-- iowhy: $INPUT_NAME -->"
label=run-$GITHUB_RUN_ID-${GITHUB_RUN_ATTEMPT:-1}
mkdir -p "$store"

note() { printf '::%s title=iowhy %s::%s\n' "$1" "$INPUT_NAME" "$2"; }
output() { printf '%s=%s\n' "$1" "$2" >>"$GITHUB_OUTPUT"; }

# The words of the job are the user's own, and split like those of a command line.
read -ra job <<<"$INPUT_JOB"
read -ra metrics <<<"$INPUT_METRICS"
"$INPUT_IOWHY" run "${job[@]}" --repeat "$INPUT_REPEAT" --label "$label" --store "$store"

outcome=first
if "$INPUT_IOWHY" store list baseline --store "$store" >/dev/null 2>&1; then
    words=()
    for metric in "${metrics[@]}"; do words+=(--metric "$metric"); done
    code=0
    "$INPUT_IOWHY" check --baseline baseline --candidate "$label" --store "$store" \
        --max-regression "$INPUT_MAX_REGRESSION" "${words[@]}" --json >"$result" || code=$?
    case $code in
        0 | 1 | 3) outcome=$(jq -r .outcome "$result") ;;
        *) note error "the comparison failed with exit code $code"; exit "$code" ;;
    esac
fi

# Table, picture and verdict.
number='def number: if . == null then "–" else (. * 100 | round / 100 + 0 | tostring) end;'
{
    echo "$mark"
    case $outcome in
        first) echo "### iowhy $INPUT_NAME: no baseline yet" ;;
        pass) echo "### iowhy $INPUT_NAME: passed ✅" ;;
        fail) echo "### iowhy $INPUT_NAME: slower than the baseline ❌" ;;
        *) echo "### iowhy $INPUT_NAME: cannot tell ❔" ;;
    esac
    echo
    if [[ $outcome == first ]]; then
        echo "The next push to the default branch makes one."
    else
        echo "| metric | baseline | this change | change, % | interval, % | verdict |"
        echo "| --- | ---: | ---: | ---: | :---: | --- |"
        jq -r "$number"' .metrics[] | "| \(.name) | \(.a.median | number) \(.unit) | \(.b.median | number) \(.unit) |"
            + " \(.change_pct | number) | \(.ci_low_pct | number) to \(.ci_high_pct | number) | \(.verdict) |"' "$result"
        echo
        echo '```mermaid'
        jq -r '[.metrics[] | select(.change_pct != null)] | "xychart-beta",
            "    title \"Change against the baseline, %\"",
            "    x-axis [\([.[] | "\"\(.name)\""] | join(", "))]",
            "    y-axis \"%\"",
            "    bar [\([.[] | .change_pct * 100 | round / 100 + 0 | tostring] | join(", "))]"' "$result"
        echo '```'
        echo
        jq -r --arg n "$INPUT_REPEAT" '"\(.rule) Allowed: \(.max_regression_pct) %, \($n) runs."' "$result"
        jq -r '.warnings[] | "- \(.text)"' "$result"
    fi
    echo
    echo "Job: \`iowhy run $INPUT_JOB\`"
} >"$comment"
cat "$comment" >>"$GITHUB_STEP_SUMMARY"

case $outcome in
    pass) color=brightgreen message=pass ;;
    fail) color=red message=slower ;;
    first) color=lightgrey message="no baseline" ;;
    *) color=yellow message="cannot tell" ;;
esac
jq -n --arg name "I/O $INPUT_NAME" --arg message "$message" --arg color "$color" \
    '{schemaVersion: 1, "label": $name, message: $message, color: $color}' >"$badge"

# One comment for each gate: found by its mark and changed, or made. A token of a fork may not: that is a warning.
api() {
    local method=$1 url=$2
    shift 2
    curl --silent --show-error --fail-with-body --request "$method" --header "Authorization: Bearer $INPUT_TOKEN" \
        --header "Accept: application/vnd.github+json" "$@" "$GITHUB_API_URL/repos/$GITHUB_REPOSITORY/$url"
}
say() {
    local page=1 list id=''
    while [[ -z $id ]]; do
        list=$(api GET "issues/$1/comments?per_page=100&page=$page") || return
        id=$(jq -r --arg mark "$mark" '[.[] | select(.body | startswith($mark))][0].id // empty' <<<"$list")
        [[ $(jq length <<<"$list") == 100 ]] || break
        page=$((page + 1))
    done
    if [[ -n $id ]]; then
        jq -Rs '{body: .}' "$comment" | api PATCH "issues/comments/$id" --data @- >/dev/null
    else
        jq -Rs '{body: .}' "$comment" | api POST "issues/$1/comments" --data @- >/dev/null
    fi
}
request=$(jq -r '.pull_request.number // empty' "$GITHUB_EVENT_PATH")
if [[ -n $request ]]; then
    say "$request" || note warning "the comment could not be written: the token needs pull-requests: write"
fi

updated=false
if [[ $INPUT_UPDATE_BASELINE == true ]] ||
    [[ $INPUT_UPDATE_BASELINE == auto && $GITHUB_EVENT_NAME == push && $GITHUB_REF_NAME == "$DEFAULT_BRANCH" &&
        $outcome != fail ]]; then
    "$INPUT_IOWHY" store tag baseline baseline --remove --store "$store" >/dev/null 2>&1 || true
    "$INPUT_IOWHY" store tag "$label" baseline --store "$store" >/dev/null
    updated=true
fi
output outcome "$outcome"
output comment "$comment"
output badge "$badge"
output updated "$updated"

case $outcome in
    fail) note error "slower than the baseline"; exit 1 ;;
    inconclusive)
        note warning "cannot tell: more runs are needed"
        [[ $INPUT_ON_INCONCLUSIVE != fail ]] || exit 3
        ;;
esac
