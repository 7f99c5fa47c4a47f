// Makes the servers of a process listen on PORTS, in this order, in place of free ports: the Worker reaches no others.
import { Server } from "node:net";

const ports = process.env.PORTS.split(",").map(Number);
const { listen } = Server.prototype;
Server.prototype.listen = function (port, ...more) {
  return listen.call(this, port === 0 ? ports.shift() : port, ...more);
};
