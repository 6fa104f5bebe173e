"""`holdfast serve`: the control plane of a state home, without a job."""

from __future__ import annotations

from holdfast.cli import options, output, server_options
from holdfast.cli.examples import examples
from holdfast.cli.until_stopped import until_stopped


@examples("", "--port 8090 --savepoint-dir savepoints")
def serve(
    port: server_options.Port = None,
    host: server_options.Host = "127.0.0.1",
    token: server_options.Token = None,
    token_file: server_options.TokenFile = None,
    tls_cert: server_options.TlsCert = None,
    tls_key: server_options.TlsKey = None,
    savepoint_dir: server_options.Savepoints = None,
    root: server_options.Roots = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Answer over HTTP for all jobs of the state home: Flink's REST and our own, until Ctrl-C.

    Jobs need no server, and the server needs no jobs: both may come and go.
    """
    own = options.settings(home, port=port)
    settings = server_options.server_settings(
        host=host,
        port=own.port,
        token=token,
        token_file=token_file,
        tls_cert=tls_cert,
        tls_key=tls_key,
        savepoints=savepoint_dir,
        roots=root,
    )
    place = own.ensure_home().resolve()
    from holdfast.server.access.home_token import secured
    from holdfast.server.process.listening import listen
    from holdfast.server.process.serving import Serving

    settings = secured(settings, place)
    serving = Serving(place, settings, listen(settings))
    with until_stopped() as stopped:
        serving.start()
        if json:
            output.emit_json(
                {"event": "serving", "url": serving.url, "home": str(place)}
                | server_options.notes(settings, serving.url)
            )
        else:
            output.say(f"serving {place} at {serving.url}")
            server_options.say_notes(settings, serving.url)
        stopped.wait()
        serving.close()
