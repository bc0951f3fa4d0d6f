package thalweg.bench;

import java.io.IOException;
import java.net.DatagramPacket;
import java.net.DatagramSocket;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;

/** Sends one datagram with the time, in milliseconds since the Unix epoch, when the first record arrives. */
public final class Probe<T> implements Sink<T> {
    private final String host;
    private final int port;

    public Probe(String address) {
        int i = address.lastIndexOf(':');
        host = address.substring(0, i);
        port = Integer.parseInt(address.substring(i + 1));
    }

    @Override
    public SinkWriter<T> createWriter(WriterInitContext c) {
        return new Writer<>(host, port);
    }

    private static final class Writer<T> implements SinkWriter<T> {
        private final String host;
        private final int port;
        private boolean sent;

        Writer(String host, int port) {
            this.host = host;
            this.port = port;
        }

        @Override
        public void write(T x, Context c) throws IOException {
            if (sent) {
                return;
            }
            sent = true;
            byte[] b = Long.toString(System.currentTimeMillis()).getBytes(StandardCharsets.US_ASCII);
            try (DatagramSocket s = new DatagramSocket()) {
                s.send(new DatagramPacket(b, b.length, InetAddress.getByName(host), port));
            }
        }

        @Override
        public void flush(boolean end) {}

        @Override
        public void close() {}
    }
}
