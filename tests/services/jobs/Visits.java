import java.time.Duration;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.StateTtlConfig;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.file.src.FileSource;
import org.apache.flink.connector.file.src.reader.TextLineInputFormat;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.core.fs.Path;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/**
 * A Flink job with keyed state of each kind: counts visits in files, and stops with a savepoint after a number of lines.
 *
 * Arguments: the files' folder, the savepoints' folder, the number of lines, the backend, the form of the savepoint.
 */
public class Visits extends KeyedProcessFunction<String, String, String> {
    public static class Last {
        public String page;
        public long seconds;
    }

    private ValueState<Long> count;
    private ValueState<String> first;
    private ValueState<Last> last;
    private ListState<String> pages;
    private MapState<String, Long> byPage;

    @Override
    public void open(OpenContext context) {
        count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
        ValueStateDescriptor<String> expiring = new ValueStateDescriptor<>("first", Types.STRING);
        expiring.enableTimeToLive(StateTtlConfig.newBuilder(Duration.ofDays(7)).build());
        first = getRuntimeContext().getState(expiring);
        last = getRuntimeContext().getState(new ValueStateDescriptor<>("last", Last.class));
        pages = getRuntimeContext().getListState(new ListStateDescriptor<>("pages", Types.STRING));
        byPage = getRuntimeContext().getMapState(new MapStateDescriptor<>("by-page", Types.STRING, Types.LONG));
    }

    @Override
    public void processElement(String line, Context ctx, Collector<String> out) throws Exception {
        String[] words = line.split(",");
        count.update(count.value() == null ? 1L : count.value() + 1);
        if (first.value() == null) first.update(words[1]);
        Last visit = new Last();
        visit.page = words[1];
        visit.seconds = Long.parseLong(words[2]);
        last.update(visit);
        pages.add(words[1]);
        byPage.put(words[1], byPage.contains(words[1]) ? byPage.get(words[1]) + 1 : 1L);
        out.collect(line);
    }

    public static void main(String[] args) throws Exception {
        Configuration settings = new Configuration();
        settings.setString("state.backend.type", args[3]);
        var env = StreamExecutionEnvironment.createLocalEnvironment(2, settings);
        var source = FileSource.forRecordStreamFormat(new TextLineInputFormat(), new Path(args[0]))
            .monitorContinuously(Duration.ofMillis(100)).build();
        var seen = env.fromSource(source, WatermarkStrategy.noWatermarks(), "files")
            .keyBy(line -> line.split(",")[0]).process(new Visits()).uid("visits").collectAsync();
        JobClient job = env.executeAsync();
        for (int events = Integer.parseInt(args[2]); events > 0; events--) seen.next();
        SavepointFormatType form = SavepointFormatType.valueOf(args[4]);
        System.out.println("savepoint " + job.stopWithSavepoint(false, args[1], form).get());
        System.exit(0);
    }
}
