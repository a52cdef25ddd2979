# gnuplot far-keys.gp: microseconds a token against the window, with far keys left out and with all of them.
$left_out << END
1024 41.2
2048 50.2
4096 62.1
8192 77.1
16384 81.3
32768 87.3
65536 81.5
131072 80.2
262144 90.4
END
$all << END
1024 43.4
4096 112.9
16384 353.8
65536 1077.6
END
set terminal pngcairo size 900,420 font "sans,11"
set output "far-keys.png"
set logscale xy 2
set format x "%.0f"
set format y "%.0f"
set yrange [32:2048]
set xlabel "window, tokens"
set ylabel "microseconds a token"
set key top left
set grid
plot $all using 1:2 with linespoints lw 2 pt 7 lc rgb "#999999" title "all keys", \
     $left_out using 1:2 with linespoints lw 2 pt 7 lc rgb "#0b6e4f" title "far keys left out (epsilon 2^{-24})"
