package thalweg.bench.nexmark;

import org.apache.flink.table.annotation.DataTypeHint;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.functions.ScalarFunction;

/** How often a letter is in a text. */
public final class CountChar extends ScalarFunction {
    public long eval(@DataTypeHint(value = "STRING", bridgedTo = StringData.class) StringData text,
            @DataTypeHint(value = "STRING", bridgedTo = StringData.class) StringData letter) {
        byte c = letter.toBytes()[0];
        long n = 0;
        for (byte b : text.toBytes()) {
            if (b == c) {
                n++;
            }
        }
        return n;
    }
}
