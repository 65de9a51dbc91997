"""EMR Serverless, as far as a launcher speaks to it: real HTTP, tokens that count, pages.

moto's takes no notice of client tokens, and its runs never end.
"""

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

APPLICATION: Final = "00f1application"


class EmrServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.runs: list[dict[str, Any]] = []
        self.page_size = 2
        self._turn = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def env(self) -> dict[str, str]:
        """The variables of a function that uses it."""
        return {
            "AWS_ENDPOINT_URL_EMR_SERVERLESS": self.url,
            "RIACHO_EMR_APPLICATION_ID": APPLICATION,
            "RIACHO_EMR_ROLE_ARN": "arn:aws:iam::000000000000:role/job",
            "RIACHO_EMR_ENTRY_POINT": "s3://code/job.py",
            "RIACHO_EMR_ARCHIVES": "s3://code/package.tar.gz#riacho",
            "RIACHO_EMR_LOG_URI": "s3://logs/",
            "RIACHO_EMR_SPARK_PARAMS": "--conf spark.executor.cores=2",
        }

    def start(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._turn:
            for run in self.runs:
                if run["clientToken"] == request["clientToken"]:
                    return run
            now_s = time.time()
            run = {
                **request,
                "jobRunId": f"run{len(self.runs)}",
                "state": "SUBMITTED",
                "createdAt": now_s,
                "updatedAt": now_s,
            }
            self.runs.append(run)
            return run

    def end(self, run_id: str, state: str) -> dict[str, Any]:
        """Let a run end; return the event that EventBridge makes of it."""
        [run] = [run for run in self.runs if run["jobRunId"] == run_id]
        run |= {"state": state, "updatedAt": time.time()}
        return {
            "version": "0",
            "detail-type": "EMR Serverless Job Run State Change",
            "source": "aws.emr-serverless",
            "detail": {
                "jobRunId": run_id,
                "applicationId": APPLICATION,
                "state": state,
                "previousState": "RUNNING",
            },
        }


class _Handler(BaseHTTPRequestHandler):
    server: EmrServer

    def do_POST(self) -> None:
        assert self.path == f"/applications/{APPLICATION}/jobruns", self.path
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        run = self.server.start(request)
        self._answer({"applicationId": APPLICATION, "jobRunId": run["jobRunId"], "arn": "arn"})

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        *_, last = url.path.split("/")
        if last == "jobruns":
            start = int(parse_qs(url.query).get("nextToken", ["0"])[0])
            end = start + self.server.page_size
            runs = [{**run, "id": run["jobRunId"]} for run in self.server.runs[start:end]]
            more = {"nextToken": str(end)} if end < len(self.server.runs) else {}
            self._answer({"jobRuns": runs, **more})
        else:
            [run] = [run for run in self.server.runs if run["jobRunId"] == last]
            self._answer({"jobRun": run})

    def _answer(self, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def emr_server() -> Iterator[EmrServer]:
    server = EmrServer()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
