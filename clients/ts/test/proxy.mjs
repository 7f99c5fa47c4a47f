// A proxy on loopback that cuts connections, to test what a client does then.
import { createServer, connect } from "node:net";

/**
 * Starts a proxy to the server at `url`, for the time of the test `t`. `limits` has one number for each connection: the
 * bytes of the response after which the connection is cut, even within an event. Further connections are cut only by `cut`.
 */
export async function cuttingProxy(t, url, limits = []) {
  const { hostname, port } = new URL(url);
  const sockets = new Set();
  const proxy = { connections: 0, cuts: 0 };
  const server = createServer((client) => {
    const limit = limits[proxy.connections++] ?? Infinity;
    const upstream = connect(Number(port), hostname);
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.on("error", () => {});
    }
    let sent = 0;
    client.pipe(upstream);
    upstream.on("data", (chunk) => {
      const rest = limit - sent;
      sent += chunk.length;
      if (chunk.length < rest) return void client.write(chunk);
      proxy.cuts++;
      client.write(chunk.subarray(0, rest), () => client.destroy());
      upstream.destroy();
    });
    upstream.on("close", () => client.end());
    client.on("close", () => upstream.destroy());
  });
  await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
  proxy.url = `http://127.0.0.1:${server.address().port}`;
  /** Cuts all connections. */
  proxy.cut = () => {
    for (const socket of sockets) socket.destroy();
  };
  t.after(() => {
    proxy.cut();
    server.close();
  });
  return proxy;
}
