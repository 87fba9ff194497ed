"""Posts a file as the one comment of this job on its pull request, or renews it; action.yml runs it.

Where the token may not comment, as in pull requests from forks, this says so and succeeds: the job summary
has the same.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

_PAGES = 30
_PER_PAGE = 100
_LONGEST = 65_000
"""GitHub refuses a comment of more than 65,536 characters."""


def main(file: str) -> None:
    """Comment with the text of a file."""
    number = _pull_request()
    if number is None:
        print("No comment: this run is of no pull request.")
        return
    if not file:
        print("No comment: nothing could be linted.")
        return
    # One comment for each job, so that jobs with other models do not replace each other's.
    job = "/".join(os.environ.get(name, "") for name in ("GITHUB_WORKFLOW", "GITHUB_JOB"))
    mark = f"<!-- tclint {hashlib.sha256(job.encode()).hexdigest()[:16]} -->"
    body = {"body": f"{mark}\n{Path(file).read_text(encoding='utf-8')[:_LONGEST]}"}
    issues = f"{os.environ['GITHUB_API_URL']}/repos/{os.environ['GITHUB_REPOSITORY']}/issues"
    try:
        known = _comment_with(mark, f"{issues}/{number}/comments")
        if known is None:
            _request("POST", f"{issues}/{number}/comments", body)
        else:
            _request("PATCH", f"{issues}/comments/{known}", body)
    except urllib.error.HTTPError as error:
        if error.code not in (401, 403, 404):
            raise SystemExit(f"GitHub refused the comment: {error}.") from None
        print(f"No comment: the token may only read ({error}). The job summary has the report.")
    except urllib.error.URLError as error:
        raise SystemExit(f"GitHub could not be reached to comment: {error.reason}.") from None


def _pull_request() -> int | None:
    try:
        event = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
        return int(event["pull_request"]["number"])
    except (KeyError, OSError, ValueError, TypeError):
        return None


def _comment_with(mark: str, url: str) -> int | None:
    for page in range(1, _PAGES + 1):
        comments = _request("GET", f"{url}?per_page={_PER_PAGE}&page={page}")
        for comment in comments:
            # Anyone can write the mark; only what this token wrote can be renewed by it, as a bot.
            if comment["body"].startswith(mark) and comment["user"]["type"] == "Bot":
                return int(comment["id"])
        if len(comments) < _PER_PAGE:
            return None
    return None


def _request(method: str, url: str, body: dict[str, str] | None = None) -> Any:
    request = urllib.request.Request(
        url,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {os.environ['GITHUB_TOKEN']}",
            "Content-Type": "application/json",
        },
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


if __name__ == "__main__":
    main(sys.argv[1])
