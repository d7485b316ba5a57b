/* Adds up the ranks of all processes; the first one prints the sum. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

/* MPI_Finalize of MPICH before 4.2 may hang over TCP: a process that flushes waits for another
 * to answer, which waits in PMI and does not answer (pmodels/mpich#6596). */
__attribute__((unused)) static void leave(int signal)
{
    (void)signal;
    _exit(0);
}

int main(int argc, char **argv)
{
    int rank, size, sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("sum of %d ranks: %d\n", size, sum);
    fflush(stdout);
#if defined(MPICH_NUMVERSION) && MPICH_NUMVERSION < 40200000
    signal(SIGALRM, leave);
    alarm(10);
#endif
    MPI_Finalize();
    return 0;
}
