import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.MetadataUtils;
import io.grpc.ClientInterceptors;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.IntFunction;
import java.util.stream.IntStream;

/**
 * The client of grpc_peer.py for grpc-java: it calls until it has reached each port that its input names, in turn, or makes many calls at
 * once.
 *
 * <p>usage: java GrpcPeer call TARGET, java GrpcPeer many TARGET COUNT, java GrpcPeer each TARGET COUNT
 */
final class GrpcPeer {
  private static final MethodDescriptor.Marshaller<byte[]> AS_IS =
      new MethodDescriptor.Marshaller<>() {
        @Override
        public InputStream stream(byte[] message) {
          return new ByteArrayInputStream(message);
        }

        @Override
        public byte[] parse(InputStream stream) {
          try {
            return stream.readAllBytes();
          } catch (IOException error) {
            throw new UncheckedIOException(error);
          }
        }
      };

  private static final MethodDescriptor<byte[], byte[]> METHOD =
      MethodDescriptor.newBuilder(AS_IS, AS_IS)
          .setType(MethodDescriptor.MethodType.UNARY)
          .setFullMethodName("kit.Which/Port")
          .build();

  private static ManagedChannel open(String target) {
    return Grpc.newChannelBuilder(target, InsecureChannelCredentials.create()).build();
  }

  private static Future<byte[]> call(Channel channel, CallOptions options) {
    return ClientCalls.futureUnaryCall(channel.newCall(METHOD, options), new byte[0]);
  }

  private static void call(String target) throws IOException, InterruptedException {
    ManagedChannel channel = open(target);
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
    for (String port = input.readLine(); port != null; port = input.readLine()) {
      long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(25);
      while (true) {
        String reached = "nobody";
        String reason = "";
        try {
          CallOptions options = CallOptions.DEFAULT.withDeadlineAfter(5, TimeUnit.SECONDS);
          reached = new String(call(channel, options).get());
        } catch (ExecutionException error) {
          reason = " (" + error.getCause().getMessage() + ")";
        }
        if (reached.equals(port)) {
          System.out.println("reached " + port);
          break;
        }
        if (System.nanoTime() > end) {
          System.err.println("reached " + reached + reason + ", not " + port);
          System.exit(1);
        }
        Thread.sleep(100);
      }
    }
  }

  /** Makes this number of calls, and waits for all; prints how many were answered, and the time. A call waits for its resources. */
  private static void answered(int count, IntFunction<Channel> channels) throws InterruptedException {
    long begun = System.nanoTime();
    CallOptions options = CallOptions.DEFAULT.withWaitForReady().withDeadlineAfter(60, TimeUnit.SECONDS);
    List<Future<byte[]>> calls = IntStream.range(0, count).mapToObj(number -> call(channels.apply(number), options)).toList();
    int good = 0;
    for (Future<byte[]> one : calls) {
      try {
        one.get();
        good++;
      } catch (ExecutionException error) {
        System.err.println(error.getCause().getMessage());
      }
    }
    System.out.printf(Locale.ROOT, "answered %d in %.3f%n", good, (System.nanoTime() - begun) / 1e9);
  }

  private static void many(String target, int count) throws InterruptedException {
    List<ManagedChannel> channels = IntStream.range(0, count).mapToObj(number -> open(target + "-" + number)).toList();
    answered(count, channels::get);
  }

  private static void each(String target, int count) throws InterruptedException {
    ManagedChannel channel = open(target);
    answered(
        count,
        number -> {
          Metadata headers = new Metadata();
          headers.put(Metadata.Key.of("number", Metadata.ASCII_STRING_MARSHALLER), String.valueOf(number));
          return ClientInterceptors.intercept(channel, MetadataUtils.newAttachHeadersInterceptor(headers));
        });
  }

  public static void main(String[] arguments) throws Exception {
    String target = arguments[1];
    switch (arguments[0]) {
      case "call" -> call(target);
      case "many" -> many(target, Integer.parseInt(arguments[2]));
      case "each" -> each(target, Integer.parseInt(arguments[2]));
      default -> throw new IllegalArgumentException(arguments[0]);
    }
    // Open channels have threads.
    System.exit(0);
  }
}
